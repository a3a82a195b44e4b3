"""What load is made of: reading, checking and flattening a model while it is still protobuf."""
