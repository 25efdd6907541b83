package chaingql

import (
	"fmt"
	"sync"

	"github.com/chaingql/chaingql/internal/plan"
)

// What a subscription keeps in addition to its plan, its variables and its filter,
// in bytes. A test compares what is counted with the growth of the heap.
const (
	subscriptionBytes = 1536    // with its share of a socket
	feedBytes         = 8 << 10 // for the stack of the goroutine of a host's field
)

// keptShare is the share of SubscriptionBytes, one in so many, that is left to answers
// about blocks that subscribers have not taken. The block log keeps within it by itself:
// whoever finds its answer gone evaluates the block again.
const keptShare = 8

// retained counts what open subscriptions keep: there may be far more of them
// than sockets, and each may have brought a document and variables of its own.
type retained struct {
	most Limits

	mu    sync.Mutex // guards what follows
	count int
	bytes int
	plans map[uint64]int // by how many subscriptions each is kept
}

// keep admits a subscription, which is to be forgotten at its end. beside is
// what it keeps more than others.
func (k *retained) keep(op *plan.Bound, beside int) (forget func(), err *plan.Error) {
	held := op.Holding()
	if most := k.most.VariableBytes; most > 0 && held.Written > most {
		return nil, full("VariableBytes", "The subscription exceeds the limit of %d bytes of variables.", most)
	}
	own := subscriptionBytes + beside + held.Variables + held.Text
	k.mu.Lock()
	defer k.mu.Unlock()
	more := own
	if k.plans[held.Plan] == 0 {
		more += held.Shared
	}
	if most := k.most.Subscriptions; most > 0 && k.count >= most {
		return nil, full("Subscriptions", "There are %d subscriptions already, which is the limit.", most)
	}
	if err := k.add(more); err != nil {
		return nil, err
	}
	k.count++
	k.plans[held.Plan]++
	return func() { k.forget(held, own) }, nil
}

// add counts bytes, where there is room for them. k.mu is held.
func (k *retained) add(bytes int) *plan.Error {
	if most := k.most.SubscriptionBytes; most > 0 && k.bytes+bytes > most-most/keptShare {
		return full("SubscriptionBytes", "All subscriptions together would exceed the limit of %d bytes.", most)
	}
	k.bytes += bytes
	return nil
}

// hold admits what a subscription keeps for a while, which is to be released.
func (k *retained) hold(bytes int) *plan.Error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.add(bytes)
}

func (k *retained) release(bytes int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bytes -= bytes
}

func (k *retained) forget(held plan.Holding, own int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count--
	k.bytes -= own
	if k.plans[held.Plan]--; k.plans[held.Plan] == 0 {
		delete(k.plans, held.Plan)
		k.bytes -= held.Shared
	}
}

func full(limit, format string, most int) *plan.Error {
	return &plan.Error{Message: fmt.Sprintf(format, most), Code: plan.CodeLimit, Limit: limit}
}
