"""Where did the time go? From TensorFlow's profiler to times per device, a picture, a trace, and plain sentences."""
