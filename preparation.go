package chaingql

// A preparation is a request's turn to be decoded and prepared. As many requests as there are processors have one: a
// decoded body can be seventy times as large as its text, and a document is compiled to hundreds of times its size, but
// most of that is garbage when the turn ends.
type preparation struct {
	of   chan struct{}
	held bool
}

// begin waits for the turn. The work in a turn takes milliseconds and waits for nobody.
func (p *preparation) begin() {
	p.of <- struct{}{}
	p.held = true
}

// end ends the turn, if there is one.
func (p *preparation) end() {
	if p.held {
		p.held = false
		<-p.of
	}
}
