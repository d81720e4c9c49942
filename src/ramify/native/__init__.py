"""Native bindings: typed functions over the compiled module, one module for each file of cpp/bindings.

They check shapes and types; they compute nothing themselves.
"""

from ramify.native import ann, linear, matrix, neural, text

__all__ = ["ann", "linear", "matrix", "neural", "text"]
