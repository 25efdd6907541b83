//go:build !linux

package gqlws

import (
	"errors"
	"sync"
)

// A watch is there on Linux alone; elsewhere, each reader waits on its own
// goroutine.
type watch struct{ waiting sync.WaitGroup }

const canWatch = false

func (*watch) await(*conn) bool { return false }
func (*watch) forget(*conn)     {}

func (n *netConn) glance([]byte) (int, error) { return 0, errors.ErrUnsupported }
