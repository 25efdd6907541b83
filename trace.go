package chaingql

import "net/http"

// A Trace is what a client says of the trace that its operation is part of, by
// W3C Trace Context and Baggage: unchecked, and empty where it says nothing. It
// is read from the operation's extensions, else from connection_init's payload,
// else from the header of the request, by these names in lower case.
type Trace struct {
	Parent  string // traceparent
	State   string // tracestate
	Baggage string // baggage
}

// maxTrace keeps what a socket holds of it small; more is left out.
const maxTrace = 1 << 10

// traceOf reads a trace from whatever has values by names.
func traceOf(value func(name string) string) Trace {
	short := func(name string) string {
		if v := value(name); len(v) <= maxTrace {
			return v
		}
		return ""
	}
	return Trace{short("traceparent"), short("tracestate"), short("baggage")}
}

func traceOfFields(fields map[string]any) Trace {
	return traceOf(func(name string) string { text, _ := fields[name].(string); return text })
}

// or is t where it names a parent, else u.
func (t Trace) or(u Trace) Trace {
	if t.Parent == "" {
		return u
	}
	return t
}

// An asker is whose operation it is, for those who watch.
type asker struct {
	transport, project string
	trace              Trace
	header             http.Header // of the request, where that is still to be asked for a trace
}

// traced is the asker of an operation with a trace of its own, if it has one.
func (a asker) traced(own Trace) asker {
	a.trace = own.or(a.trace)
	return a
}
