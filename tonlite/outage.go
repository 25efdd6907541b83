package tonlite

import (
	"context"
	"errors"

	"github.com/chaingql/chaingql"
)

// An outage is the error of a call that no server has answered in time, or that exceeds a limit on
// concurrent calls. A later call may succeed. An outage also wraps [chaingql.ErrUnavailable].
type outage struct{ error }

func (o outage) Unwrap() []error { return []error{o.error, chaingql.ErrUnavailable} }

// timedOut returns the error of a call whose context ended with err. If its deadline has passed,
// that is an outage.
func timedOut(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, chaingql.ErrUnavailable) {
		return outage{err}
	}
	return err
}
