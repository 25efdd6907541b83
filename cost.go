package chaingql

import (
	"strconv"

	"github.com/chaingql/chaingql/internal/plan"
)

// What the fields of the schema cost before they are asked for. A page from the
// window of recent blocks costs as much as one from the Backend, so that the
// same query is not refused now and then. An account's balance is priced where
// the account is: see [plan.Field].

func infoCost(plan.Args) plan.Cost { return plan.Cost{Calls: 1, Blocks: paceBlocks} }

func blocksCost(args plan.Args) plan.Cost {
	if args == nil {
		return plan.Cost{Calls: 1, Blocks: pageSize}
	}
	q, err := blocksQuery(args)
	if err != nil {
		return plan.Cost{} // and that is all there will be
	}
	return plan.Cost{Calls: 1, Blocks: max(q.First, q.Last)}
}

// appendCost adds a query's price to its answer.
func appendCost(answer []byte, c plan.Cost) []byte {
	answer = append(answer[:len(answer)-1], `,"extensions":{"cost":{"calls":`...)
	answer = strconv.AppendInt(answer, int64(c.Calls), 10)
	answer = append(answer, `,"blocks":`...)
	answer = strconv.AppendInt(answer, int64(c.Blocks), 10)
	return append(answer, "}}}"...)
}
