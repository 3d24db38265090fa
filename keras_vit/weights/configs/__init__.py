"""What configurations beside the tensors tell, as each library writes them."""
