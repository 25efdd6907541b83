package attack

import (
	"bytes"
	"fmt"
	"time"
)

// frameFloods returns floods of frames without content. The WebSocket library does not report all
// of these frames to the handler. The client needs no credentials for any flood.
func frameFloods() []attack {
	const enough = "closed 1008|cut"
	var all []attack
	for _, k := range []struct {
		name        string
		first, each []byte
	}{
		{"bare pings", nil, frame(final|opPing, "")},
		{"pings", nil, frame(final|opPing, "x")},
		{"bare pongs", nil, frame(final|opPong, "")},
		{"pongs", nil, frame(final|opPong, "x")},
		{"pongs of maximum length", nil, frame(final|opPong, string(make([]byte, 125)))},
		{"empty fragments", frame(opText, ""), frame(opContinue, "")},
		{"empty fragments and pongs", frame(opText, ""), append(frame(opContinue, ""), frame(final|opPong, "")...)},
		{"fragments of a byte", frame(opText, ""), frame(opContinue, " ")},
		{"empty messages", nil, frame(final|opText, "")},
		{"closes and pongs", frame(final|opClose, "\x03\xe8"), frame(final|opPong, "")},
	} {
		for _, protocol := range []string{legacy, modern} {
			for _, n := range []int{20_000, 500_000} {
				want := enough
				if k.name == "empty messages" && protocol == modern {
					want = "closed 4400"
				} else if k.name == "closes and pongs" {
					want = "closed 1000|cut"
				}
				name := fmt.Sprintf("%s, %d (%s)", k.name, n, protocol)
				all = append(all, frameFlood(name, want, protocol, k.first, k.each, n))
			}
		}
	}
	return all
}

// frameFlood returns an attack that sends n frames before any message and ignores responses. It limits
// the server's CPU time, because a server that spends a second on half a million frames does not limit
// them effectively.
func frameFlood(name, want, protocol string, first, each []byte, n int) attack {
	return attack{name: name, want: want, within: 5 * usual, cpu: 4 * documentCPU,
		do: func(s *target) (outcome, error) {
			w, err := s.open(protocol, false)
			if err != nil {
				return outcome{}, err
			}
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				w.send(first)
				for ; n > 0; n -= 1000 {
					if _, err := w.Write(bytes.Repeat(each, 1000)); err != nil {
						return
					}
				}
			}()
			defer w.Close()
			w.wait(4 * time.Second)
			o, err := w.end()
			<-sent // the writer continues after the close frame
			return o, err
		}}
}
