"""`hloom view`: programs in one HTML page that needs no server and no network."""
