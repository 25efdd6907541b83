package attack

// families returns all families of attacks. If full is true, they contain more and larger sizes.
func families(full bool) []family {
	all := []family{
		// The first two families wait the longest, so they start first.
		// Up to 354 MiB were seen, 64 MiB of which PendingResponseBytes counts. The rest is goroutines, and garbage
		// that has not been collected yet. Without limits, it is more than a gigabyte.
		{name: "unread responses", attacks: unreadResponses(), separate: true, peak: 450 << 20},
		{name: "stalled backend", attacks: stalled(), separate: true, recent: true},
		{name: "fragments", attacks: fragments()},
		{name: "nesting", attacks: nesting(full)},
		{name: "aliases", attacks: aliases()},
		{name: "directives", attacks: directives()},
		{name: "same names", attacks: sameNames()},
		{name: "operations", attacks: operations()},
		{name: "limit boundaries", attacks: boundaries()},
		{name: "lexical", attacks: lexical()},
		{name: "introspection", attacks: introspection()},
		{name: "variables", attacks: variables()},
		{name: "query costs", attacks: queryCosts()},
		{name: "arguments", attacks: arguments()},
		{name: "single blocks", attacks: lookups()},
		{name: "ranges of masterchain blocks", attacks: masterRanges()},
		{name: "epochs", attacks: epochs(), separate: true, kind: renewed},
		{name: "arguments of host fields", attacks: hostArguments()},
		{name: "long numbers", attacks: longFloats()},
		{name: "default values", attacks: defaults(full), separate: true, busy: true, kind: patient, peak: 200 << 20},
		{name: "bodies", attacks: bodies()},
		{name: "headers", attacks: headers()},
		{name: "long headers", attacks: longHeaders()},
		{name: "credentials", attacks: credentials()},
		{name: "rate limits", attacks: rateLimits()},
		{name: "paths", attacks: paths()},
		{name: "persisted documents", attacks: persisted()},
		{name: "handshakes", attacks: handshakes()},
		{name: "frames", attacks: frames()},
		{name: "graphql-ws", attacks: messages(legacy)},
		{name: "graphql-transport-ws", attacks: messages(modern)},
		{name: "floods", attacks: floods(), peak: 300 << 20},
		{name: "floods of frames", attacks: frameFloods()},
		{name: "connections", attacks: connections(full), many: full, peak: 500 << 20},
		{name: "event streams", attacks: events(), separate: true, busy: true, peak: 300 << 20},
		{name: "idle connections", attacks: idle(full), many: full, separate: true, busy: true, kind: patient,
			peak: 600 << 20},
		{name: "slow bodies", attacks: slowBodies(), separate: true, peak: 200 << 20},
		{name: "slow bodies after responses", attacks: slowBodiesAfterResponses(), separate: true, busy: true,
			recent: true},
		// The server decodes few bodies at once, so an honest query waits until earlier bodies are decoded.
		{name: "JSON trees", attacks: jsonTrees(full), separate: true, recent: true, peak: 140 << 20},
		{name: "incomplete messages", attacks: incompleteMessages(full), many: full, separate: true, busy: true,
			peak: 500 << 20},
		{name: "variants", attacks: variants(full), separate: true, busy: true, peak: 250 << 20},
		{name: "resumed subscriptions", attacks: resumed(full), separate: true, peak: 200 << 20},
		{name: "searching crowds", attacks: append(searchers(full), wrappedSearchers(full)...), separate: true,
			busy: true, peak: 200 << 20},
		{name: "new documents", attacks: leavers(full), separate: true, busy: true},
		{name: "large buffers", attacks: largeBuffers(full), separate: true, recent: true, peak: 350 << 20},
		{name: "events of hosts", attacks: hostEvents(full), separate: true, busy: true, peak: 200 << 20},
		{name: "full sockets", attacks: fullSockets(full), separate: true, recent: true, many: full,
			peak: 300 << 20},
		{name: "slow readers", attacks: slowReads(full), separate: true, peak: 400 << 20},
		{name: "slow peers", attacks: slowPeers(full), separate: true, atOnce: true},
	}
	if full {
		all = append(all, family{name: "retained subscriptions", attacks: retained(), separate: true, kind: patient,
			peak: 1 << 30})
	}
	return all
}
