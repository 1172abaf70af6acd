"""`hloom view`: programs as one HTML page that needs no server and no network."""
