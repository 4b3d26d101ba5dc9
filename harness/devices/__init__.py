"""Which devices are there? Names, specs, profiles, and the one place that configures TensorFlow's devices."""
