package chaingql

import (
	"fmt"
	"sync"

	"github.com/chaingql/chaingql/internal/plan"
)

// The memory of a subscription in addition to its plan, its variables and its filter, in bytes. A test compares the
// counted bytes with the growth of the heap.
const (
	subscriptionBytes = 1664    // including its share of a socket's memory
	hostStreamBytes   = 8 << 10 // the stack of the goroutine, for a subscription to a host's field
)

// keptShare is the divisor of SubscriptionBytes for the part that is reserved for responses with blocks that
// subscribers have not taken yet. The block log keeps within this part by itself: it discards such responses, and
// evaluates their blocks again when they are needed.
const keptShare = 8

// freeShare is the divisor of the part of SubscriptionBytes that is free. When less than half is free, a peer may not
// hold more than that, but always leastShare bytes. So 300 peers still leave a tenth of this half for others.
const (
	freeShare  = 128
	leastShare = 16 << 10
)

// A subscriptionQuota bounds the number and the memory of open subscriptions. There may be far more subscriptions than
// sockets, each with its own document and variables.
type subscriptionQuota struct {
	most Limits

	mu    sync.Mutex // guards the fields below
	count int
	bytes int
	plans map[keptPlan]int // the number of subscriptions that keep it
}

// A keptPlan is a plan that subscriptions of a peer keep, or those of all peers if by is nil.
type keptPlan struct {
	id uint64
	by *peer
}

// check returns an error if the variables of op are too large. It is called before any of them are copied, because a
// filter may use one variable hundreds of times.
func (k *subscriptionQuota) check(op *plan.Bound) *plan.Error {
	if most := k.most.VariableBytes; most > 0 && op.MemoryUse().VariablesJSON > most {
		return full("VariableBytes", "The subscription exceeds the limit of %d bytes of variables.", most)
	}
	return nil
}

// acquire counts a new subscription until forget is called, or returns an error if the subscription exceeds a limit.
// extra is the memory of the subscription in bytes in addition to that of op. Each peer that keeps a plan has all of it
// counted, because the others who keep it may leave.
func (k *subscriptionQuota) acquire(op *plan.Bound, extra int, by *peer) (forget func(), err *plan.Error) {
	held := op.MemoryUse()
	own := subscriptionBytes + extra + held.Variables + held.Text
	k.mu.Lock()
	defer k.mu.Unlock()
	more, ofPeer := own, own
	if k.plans[keptPlan{held.Plan, nil}] == 0 {
		more += held.Shared
	}
	if k.plans[keptPlan{held.Plan, by}] == 0 {
		ofPeer += held.Shared
	}
	if most := k.most.Subscriptions; most > 0 && k.count >= most {
		return nil, full("Subscriptions", "There are %d subscriptions already, which is the limit.", most)
	}
	if err := k.take(more, ofPeer, &by.held, leastShare); err != nil {
		return nil, err
	}
	k.count++
	k.plans[keptPlan{held.Plan, nil}]++
	k.plans[keptPlan{held.Plan, by}]++
	return func() { k.forget(held, own, by) }, nil
}

// take counts bytes, and ofPeer bytes for a peer, or returns an error if there is no room for them. least is what a
// peer may always hold. The caller must hold k.mu.
func (k *subscriptionQuota) take(bytes, ofPeer int, of *int, least int) *plan.Error {
	most := k.most.SubscriptionBytes - k.most.SubscriptionBytes/keptShare
	free := most - k.bytes
	switch {
	case most <= 0: // no limit
	case bytes > free:
		return full("SubscriptionBytes", "All subscriptions together would exceed the limit of %d bytes.",
			k.most.SubscriptionBytes)
	case free < most/2 && *of+ofPeer > max(free/freeShare, least):
		return full("SubscriptionBytes", "The subscriptions of this client have their share of %d bytes.",
			k.most.SubscriptionBytes)
	}
	k.bytes += bytes
	*of += ofPeer
	return nil
}

// reserve counts bytes until release is called, or returns an error if there is no room for them. of is the memory of
// the peer that is reserved. A peer may always reserve something.
func (k *subscriptionQuota) reserve(bytes int, of *int) *plan.Error {
	k.mu.Lock()
	defer k.mu.Unlock()
	least := leastShare
	if *of == 0 {
		least = bytes
	}
	return k.take(bytes, bytes, of, least)
}

func (k *subscriptionQuota) release(bytes int, of *int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bytes -= bytes
	*of -= bytes
}

// forget ends the count of a subscription that acquire has counted with own bytes in addition to its plan.
func (k *subscriptionQuota) forget(held plan.MemoryUse, own int, by *peer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count--
	k.bytes -= own
	if k.leave(keptPlan{held.Plan, nil}) {
		k.bytes -= held.Shared
	}
	by.held -= own
	if k.leave(keptPlan{held.Plan, by}) {
		by.held -= held.Shared
	}
}

// leave removes one of the subscriptions that keep a plan, and reports whether it was the last one.
func (k *subscriptionQuota) leave(p keptPlan) bool {
	if k.plans[p]--; k.plans[p] > 0 {
		return false
	}
	delete(k.plans, p)
	return true
}

func full(limit, format string, most int) *plan.Error {
	return &plan.Error{Message: fmt.Sprintf(format, most), Code: plan.CodeLimit, Limit: limit}
}
