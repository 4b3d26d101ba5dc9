"""tf.distribute: what is trained, under which strategy, by which loop, and what the training went through."""
