package natschain

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A nodeMessage is an index node to store, with its JSON payload.
type nodeMessage struct {
	node    *node
	payload []byte
}

// sendNodes stores index nodes. If the index already has one of them, sendNodes keeps it if it has the same End:
//
//   - If it were stored again, it would be newer than the nodes after it, and Prune would delete them with it.
//   - If blocks in its range were pruned meanwhile, a new node would lack them. It would be incomplete if the stream
//     is then restored from a backup.
func (w *Writer) sendNodes(ctx context.Context, nodes []nodeMessage) error {
	messages := make([]*nats.Msg, len(nodes))
	for i, n := range nodes {
		messages[i] = nodeMsg(n, 0)
	}
	for done := 0; done < len(nodes); {
		n, err := w.send(ctx, messages[done:], func(int, *jetstream.PubAck) error { return nil })
		if done += n; err == nil {
			return nil
		}
		if hasCode(err, sequenceUnderway) { // another Writer is storing the node
			pause(ctx, pauseBetween)
		} else if !hasCode(err, wrongLastSequence) {
			return err
		}
		if err := w.replaceNode(ctx, nodes[done]); err != nil {
			return err
		}
		done++
	}
	return nil
}

// replaceNode stores a node in place of the stored one, if that has another End.
func (w *Writer) replaceNode(ctx context.Context, n nodeMessage) error {
	f, found, err := w.b.get(ctx, w.b.names.index, getRequest{Last: n.node.subject, NoHead: true})
	if err != nil {
		return err
	}
	var old node
	if found && json.Unmarshal(f.Message.Data, &old) == nil && old.End == n.node.End {
		return nil
	}
	_, err = w.b.js.PublishMsg(ctx, nodeMsg(n, f.Message.Seq), jetstream.WithRetryAttempts(0))
	return err
}

// nodeMsg returns the message of a node. The server stores it only if the newest message with its subject has the
// sequence number last, which is 0 if there is none.
func nodeMsg(n nodeMessage, last uint64) *nats.Msg {
	m := &nats.Msg{Subject: n.node.subject, Data: n.payload, Header: nats.Header{}}
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(last, 10))
	return m
}
