"""Input and output: data files, `Dataset`, labels, validation of X and y, model directories."""
