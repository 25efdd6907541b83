package attack

// families returns all families. If full is true, they contain more sizes.
func families(full bool) []family {
	all := []family{
		{name: "fragments", attacks: fragments()},
		{name: "nesting", attacks: nesting(full)},
		{name: "aliases", attacks: aliases()},
		{name: "directives", attacks: directives()},
		{name: "same names", attacks: sameNames()},
		{name: "operations", attacks: operations()},
		{name: "edges of limits", attacks: edges()},
		{name: "lexical", attacks: lexical()},
		{name: "introspection", attacks: introspection()},
		{name: "variables", attacks: variables()},
		{name: "costs", attacks: costs()},
		{name: "arguments", attacks: arguments()},
		{name: "arguments of host fields", attacks: hostArguments()},
		{name: "default values", attacks: defaults(full), apart: true, kind: patient, peak: 200 << 20},
		{name: "bodies", attacks: bodies()},
		{name: "headers", attacks: headers()},
		{name: "long headers", attacks: longHeaders()},
		{name: "credentials", attacks: credentials()},
		{name: "rates", attacks: rates()},
		{name: "paths", attacks: paths()},
		{name: "persisted documents", attacks: persisted()},
		{name: "handshakes", attacks: handshakes()},
		{name: "frames", attacks: frames()},
		{name: "graphql-ws", attacks: messages(legacy)},
		{name: "graphql-transport-ws", attacks: messages(modern)},
		{name: "floods", attacks: floods(), peak: 300 << 20},
		{name: "floods of frames", attacks: frameFloods()},
		{name: "crowds", attacks: crowds(full), peak: 500 << 20},
		{name: "event streams", attacks: events(), apart: true, peak: 300 << 20},
		{name: "idle connections", attacks: idle(full), apart: true, kind: patient, peak: 600 << 20},
		{name: "stalled backend", attacks: stalled(), apart: true, recent: true},
		{name: "slow bodies", attacks: slowBodies(), apart: true, peak: 200 << 20},
		{name: "unread answers", attacks: unreadAnswers(), apart: true, peak: 300 << 20},
		// Decoding is queued, so an honest query waits for all earlier bodies.
		{name: "JSON trees", attacks: trees(full), apart: true, recent: true, peak: 140 << 20},
		{name: "half messages", attacks: halves(full), apart: true, peak: 500 << 20},
		{name: "variants", attacks: variants(full), apart: true, peak: 250 << 20},
		{name: "resumed", attacks: resumed(full), apart: true, peak: 200 << 20},
		{name: "full sockets", attacks: fullSockets(full), apart: true, recent: true, peak: 200 << 20},
		{name: "slow readers", attacks: trickles(full), apart: true, peak: 400 << 20},
		{name: "slow peers", attacks: slowPeers(full), apart: true, atOnce: true},
	}
	if full {
		all = append(all, family{name: "retained", attacks: retained(), apart: true, kind: patient, peak: 1 << 30})
	}
	return all
}
