"""Runs work in processes of their own, with a time limit: TensorFlow fixes its devices once per process."""
