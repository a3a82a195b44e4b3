"""The page of `onnxc report`: HTML from the facts alone."""

from onnxc.report.html.document import page

__all__ = ["page"]
