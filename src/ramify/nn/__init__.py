"""What the deep models share: encoders, tables of classifiers, the training loop."""
