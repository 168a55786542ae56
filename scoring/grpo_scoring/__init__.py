"""Log-probabilities of given tokens, and the wire format that carries them."""
