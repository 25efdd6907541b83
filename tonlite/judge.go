package tonlite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// judge calls check with the response of server s to q. It returns an error if s failed, sent an
// invalid response, or does not have the block. A block that no server proves or sends is not the fault of s if s lags,
// or in haste.
func (set *servers) judge(ctx context.Context, s *server, q lite.Message, r reply, check checkFunc) error {
	err := r.err
	if isLag(err) {
		s.lags()
	}
	if begin := time.Now(); err == nil {
		err = recoverPanics(func() error { return check(context.WithValue(ctx, senderKey{}, s), r.answer) })
		if r.release(); err == nil {
			s.succeeded(q)
			return nil
		}
		switch {
		case errors.Is(err, errUnproven) && s.lagged(begin):
			err = fmt.Errorf("%w: %v", lite.Error{Code: lite.CodeTimeout, Message: "no proof yet"}, err)
		case !errors.Is(err, errMissing):
			err = fmt.Errorf("invalid response: %w", err)
		case errors.Is(err, errUnproven) && !inHaste(ctx) && set.repeats(ctx, s, q):
			err = fmt.Errorf("%w: %v", errInvented, err) // not %w: the block is not missing
		}
	}
	var unused unusedError
	if errors.As(err, &unused) {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var serverErr lite.Error
	switch {
	case errors.As(err, &serverErr):
		if serverErr.Code == lite.CodeNotFound {
			return fmt.Errorf("%w: %w", errMissing, err)
		}
		return err // the server works, but rejects the query or lags
	case errors.Is(err, errMissing):
		return err
	case set.ctx.Err() != nil:
		return errClosed
	case errors.Is(err, lite.ErrLost): // the next call may reconnect at once
		return err
	}
	set.backOff(s, err)
	return err
}

type senderKey struct{}

// sender returns the server whose response is checked with ctx, the context of a checkFunc.
func sender(ctx context.Context) *server {
	s, _ := ctx.Value(senderKey{}).(*server)
	return s
}

// repeats reports whether server s still answers q, and not much later than usual. If no server proves or sends the
// block in the first response, a server that has deleted the block meanwhile does not.
func (set *servers) repeats(ctx context.Context, s *server, q lite.Message) bool {
	ctx, cancel := context.WithTimeout(ctx, set.hedgeDelay(s))
	defer cancel()
	_, release, err := set.fetch(ctx, s, q, new(atomic.Int32))
	if err != nil {
		return false
	}
	release()
	return true
}
