"""The rules of operations, a file for each family; ``table`` lists them all."""
