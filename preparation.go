package chaingql

import "runtime"

// preparing bounds how many requests are decoded and prepared at once: as many of each size as there are processors. A
// decoded body can be seventy times as large as its text, and a document is compiled to hundreds of times its size, but
// most of that is garbage when the turn ends. Small requests do not wait for large ones, which take a hundred times as
// long.
type preparing struct{ small, large chan struct{} }

func newPreparing() preparing {
	n := runtime.GOMAXPROCS(0)
	return preparing{make(chan struct{}, n), make(chan struct{}, n)}
}

// A preparation is a request's turn.
type preparation struct {
	of   *preparing
	held chan struct{} // nil if there is no turn
}

// begin waits for the turn of a request of n bytes. The work in a turn takes milliseconds and waits for nothing.
func (p *preparation) begin(n int) {
	p.held = p.of.small
	if n > freeBytes {
		p.held = p.of.large
	}
	p.held <- struct{}{}
}

// end ends the turn, if there is one.
func (p *preparation) end() {
	if p.held != nil {
		<-p.held
		p.held = nil
	}
}
