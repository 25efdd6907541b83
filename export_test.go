package chaingql

// Feeds is how many evaluations a new block costs.
func (h *Handler) Feeds() int { return h.blocks.Stats().Feeds }

// Guests is how many event streams are under way.
func (h *Handler) Guests() int { return len(h.streams.here()) }
