"""What the command line reports: a model (info) and an operator (operators, page)."""
