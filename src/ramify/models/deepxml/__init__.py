"""Models of the DeepXML family: shortlists from an index of label embeddings, ranked by label classifiers."""
