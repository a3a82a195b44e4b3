"""C headers that outputs of onnxc include inline, installed as the package onnxc.runtime_c."""
