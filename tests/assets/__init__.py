"""Small real models and data for the tests: nothing is downloaded but packages."""
