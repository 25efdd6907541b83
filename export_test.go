package chaingql

// Feeds is how many evaluations a new block costs.
func (h *Handler) Feeds() int { return h.blocks.Stats().Feeds }
