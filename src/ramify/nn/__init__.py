"""Neural components: encoders embed samples, heads score labels, samplers choose which labels a sample trains on."""
