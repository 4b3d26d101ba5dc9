"""Is it right: values, gradients, and where each op ran. ``verify`` joins them."""
