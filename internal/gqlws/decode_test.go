package gqlws

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// A message that has thousands of keys, of which the protocol ignores all but a few, must not take more memory than one
// long string: peers may send many such messages, and a message is decoded before any limit applies to its contents.
func TestDecodingManyKeysTakesNoMemoryForEach(t *testing.T) {
	var keys strings.Builder
	for i := 0; keys.Len() < 60<<10; i++ {
		fmt.Fprintf(&keys, `"%x":1,`, i)
	}
	for name, frame := range map[string]string{
		"in a ping":                    `{` + keys.String() + `"type":"ping"}`,
		"in the payload of a ping":     `{"type":"ping","payload":{` + keys.String() + `"":1}}`,
		"in connection_init":           `{` + keys.String() + `"type":"connection_init"}`,
		"in subscribe":                 `{` + keys.String() + `"type":"subscribe","id":"1","payload":{"query":"{a}"}}`,
		"in the payload of subscribe":  `{"type":"subscribe","id":"1","payload":{` + keys.String() + `"query":"{a}"}}`,
		"in start":                     `{` + keys.String() + `"type":"start","id":"1","payload":{"query":"{a}"}}`,
		"in the payload of start":      `{"type":"start","id":"1","payload":{` + keys.String() + `"query":"{a}"}}`,
		"in a message of unknown type": `{` + keys.String() + `"type":"x"}`,
		"before a syntax error":        `{` + keys.String() + `}`,
	} {
		for _, c := range []codec{transport{maxID: 128}, legacy{maxID: 128}} {
			const times = 10
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range times {
				c.decode([]byte(frame))
			}
			runtime.ReadMemStats(&after)
			used := (after.TotalAlloc-before.TotalAlloc)/times - uint64(len(frame)) // without the copy of the frame
			if used > 16<<10 {
				t.Errorf("%s, %s: decoding %d bytes allocates %d bytes, want at most 16 KiB",
					name, c.name(), len(frame), used)
			}
		}
	}
}
