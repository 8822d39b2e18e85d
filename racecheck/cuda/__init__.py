"""Real CUDA: what needs a GPU. Imported only when asked for."""
