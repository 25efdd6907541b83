package chaingql

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/chaingql/chaingql/internal/strictjson"
)

// maxParameters is the maximum number of parameters in the query string of a GET. Five have a meaning, and parsing the
// others takes memory for each of them.
const maxParameters = 64

// decodeURL parses the query string of a GET.
func decodeURL(query string, depth int) (*request, *httpError) {
	if strings.Count(query, "&") >= maxParameters {
		return nil, badRequest(fmt.Sprintf("The URL's query has more than %d parameters.", maxParameters))
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, unreadable("The URL's query is malformed.")
	}
	fields := map[string]any{}
	for _, name := range []string{"query", "documentId", "operationName", "variables", "extensions"} {
		given := values[name]
		if len(given) > 1 {
			return nil, badRequest("Duplicate parameter " + name + ".")
		}
		if len(given) == 0 {
			continue
		}
		fields[name] = given[0]
		if name == "variables" || name == "extensions" {
			fields[name] = nil
			if given[0] == "" {
				continue
			}
			if fields[name], err = strictjson.Read([]byte(given[0]), depth); err != nil {
				return nil, notJSON("Parameter "+name, err, depth)
			}
		}
	}
	return requestOf(fields)
}
