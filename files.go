package chaingql

import "math"

// noFileLimit is the result of fileLimit if the limit is not known.
const noFileLimit = math.MaxUint64

// fileReserve returns how many of the files that the process may open remain for the Backend, when new sockets and
// event streams are refused. Otherwise clients could take all files, and a Backend that has lost its connection could
// never connect again.
func fileReserve(limit uint64) uint64 { return min(64, limit/4) }
