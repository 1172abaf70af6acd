"""Windows: pooling, running sums and their like, select-and-scatter, scans."""
