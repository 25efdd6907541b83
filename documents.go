package chaingql

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/chaingql/chaingql/internal/plan"
)

// trusted are the texts of the documents that alone are served, by their
// SHA-256 in lower-case hex. A nil one trusts every document.
type trusted map[string]string

// trust checks the host's documents: one that is not valid would only be found
// by a client otherwise.
func (h *Handler) trust(documents []string) (trusted, error) {
	if documents == nil {
		return nil, nil
	}
	t := trusted{}
	for i, text := range documents {
		if errs := h.plans.Check(text); errs != nil {
			return nil, fmt.Errorf("chaingql: TrustedDocuments[%d]: %w", i, errs)
		}
		t[plan.Hash(text)] = text
	}
	return t, nil
}

// prepare finds the document that is asked for, by its text or by its hash as
// Apollo's persisted queries have it, and makes it ready to run.
func (h *Handler) prepare(ctx context.Context, asked *request) (*plan.Bound, plan.Errors) {
	if x := asked.found; x != nil {
		if h.trusted == nil && h.plans.Find(&x.bound, x.scan.query, x.scan.operation, x.scan.given) {
			return &x.bound, nil
		}
		asked = x.scan.request()
	}
	text := asked.Query
	if text == "" {
		var known bool
		if h.trusted != nil {
			text, known = h.trusted[asked.hash]
		} else {
			text, known = h.plans.Recall(asked.hash)
		}
		if !known {
			// The words are the protocol's: clients look for them.
			return nil, plan.Errors{{Message: "PersistedQueryNotFound", Code: codePersistedNotFound}}
		}
	} else if asked.hash != "" && asked.hash != plan.Hash(text) {
		return nil, plan.Errors{{Message: "provided sha does not match query", Code: codeBadRequest}}
	}
	if h.trusted != nil && h.trusted[plan.Hash(text)] == "" {
		return nil, plan.Errors{{Message: "Only documents that the service knows are served.", Code: codeBadRequest}}
	}
	op, errs := h.plans.Prepare(text, asked.OperationName, asked.Variables)
	for _, err := range errs {
		h.events.limit(ctx, err.Limit)
	}
	if errs == nil && asked.hash != "" && asked.Query != "" {
		h.plans.Remember(asked.hash, text)
	}
	return op, errs
}

// persistedHash reads extensions.persistedQuery.
func persistedHash(extensions map[string]any) (string, *refusal) {
	if extensions["persistedQuery"] == nil {
		return "", nil
	}
	p, ok := extensions["persistedQuery"].(map[string]any)
	if !ok {
		return "", badRequest(`"extensions.persistedQuery" must be an object.`)
	}
	if fmt.Sprint(p["version"]) != "1" {
		return "", badRequest("Unsupported persisted query version.")
	}
	hash, _ := p["sha256Hash"].(string)
	hash = strings.ToLower(hash)
	if raw, err := hex.DecodeString(hash); err != nil || len(raw) != sha256.Size {
		return "", badRequest(`"extensions.persistedQuery.sha256Hash" must be 64 hex digits.`)
	}
	return hash, nil
}
