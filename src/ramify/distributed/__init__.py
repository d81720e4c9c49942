"""Training, prediction and evaluation by many processes or machines, with the results of one."""

from ramify.distributed.prediction import predict_files
from ramify.distributed.training import fit_files

__all__ = ["fit_files", "predict_files"]
