"""The Jinja templates of the generated C, installed as the package onnxc.templates."""
