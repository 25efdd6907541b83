package chaingql_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// worstCase returns the memory that clients can make a Handler with these limits keep, as docs/limits.md computes it.
func worstCase(l chaingql.Limits) (parts []int) {
	const perSocket, perStream, pages, ended = socketBytes, 32 << 10, 384 * (16 << 10), 4096 * 512
	return []int{
		l.CacheBytes, l.SubscriptionBytes, l.PendingBodyBytes, l.PendingResponseBytes,
		l.Requests * requestBytes, pages, l.Connections * perSocket, l.Connections * perStream, ended,
	}
}

// The sizes in docs/operations.md leave room for what the limits do not count.
func TestDocumentedSizesFitIntoTheirMemory(t *testing.T) {
	const outsideHeap = 16 << 20 // if the heap reaches GOMEMLIMIT; an eighth of the memory is for the kernel
	memory := map[string]int64{"256 MB": 256e6, "512 MB": 512e6, "1 GB": 1e9, "4 GB": 4e9}
	_, text, _ := strings.Cut(read(t, "docs/operations.md"), "| memory |")
	names := regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(strings.SplitN(text, "\n", 2)[0], -1)
	rows := 0
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		size, known := memory[cells[0]]
		if !known {
			continue
		}
		rows++
		l, files, soft := chaingql.DefaultLimits(), int64(0), int64(0)
		for i, name := range names {
			switch value := amount(t, cells[i+1]); name[1] {
			case "GOMEMLIMIT":
				soft = value
			case "LimitNOFILE":
				files = value
			default:
				reflect.ValueOf(&l).Elem().FieldByName(name[1]).SetInt(value)
			}
		}
		sum := int64(0)
		for _, part := range worstCase(l) {
			sum += int64(part+1<<20-1) >> 20 << 20
		}
		equal(t, cells[0]+": at most", amount(t, cells[len(cells)-1])>>20, sum>>20)
		if sum*10 > soft*7 || (soft+outsideHeap)*8 > size*7 {
			t.Errorf("%s: %d MiB of a GOMEMLIMIT of %d MiB are too much", cells[0], sum>>20, soft>>20)
		}
		if files < 4*int64(l.Connections) {
			t.Errorf("%s: LimitNOFILE is %d for %d connections", cells[0], files, l.Connections)
		}
	}
	equal(t, "sizes", rows, len(memory))
}

// directive returns the values of a directive in examples/operations/chain-api.service.
func directive(t *testing.T, name string) (values []string) {
	t.Helper()
	for _, found := range regexp.MustCompile("(?m)^"+name+"=(.*)$").FindAllStringSubmatch(
		read(t, "examples/operations/chain-api.service"), -1) {
		values = append(values, found[1])
	}
	if len(values) != 1 {
		t.Errorf("the unit has %d lines %s=, want 1", len(values), name)
		return []string{""}
	}
	return values
}

func TestDocumentedSystemdUnitIsValid(t *testing.T) {
	const unit = "examples/operations/chain-api.service"
	drain := regexp.MustCompile(`(?m)^\s*(?:const )?(?:drain|\w*[lL]ead)\s+= (\d+) \* time.Second`)
	needed := 0
	for _, found := range drain.FindAllStringSubmatch(read(t, "examples/drain/main.go"), -1) {
		n, _ := strconv.Atoi(found[1])
		needed += n
	}
	stop, err := strconv.Atoi(directive(t, "TimeoutStopSec")[0])
	if err != nil || needed == 0 || stop < needed+5 {
		t.Errorf("TimeoutStopSec=%d, but examples/drain needs %d s", stop, needed)
	}
	limits := fmt.Sprintf("| 1 GB | %s MiB | %s |", strings.TrimSuffix(strings.TrimPrefix(
		directive(t, "Environment")[0], "GOMEMLIMIT="), "MiB"), "32,768")
	if !strings.Contains(read(t, "docs/operations.md"), limits) || directive(t, "LimitNOFILE")[0] != "32768" {
		t.Errorf("the unit does not have the values of the row of 1 GB")
	}
	equal(t, "starts while the database is down", directive(t, "StartLimitIntervalSec")[0], "0")
	equal(t, "Restart", directive(t, "Restart")[0], "always")

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not installed: only the directives above were checked")
		return
	}
	// systemd-analyze requires that the program exists.
	text := strings.Replace(read(t, unit), directive(t, "ExecStart")[0], "/bin/true", 1)
	file := filepath.Join(t.TempDir(), filepath.Base(unit))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", "--man=no", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v: %s", err, out)
	}
}

// The alarms may only use metrics and labels that otelchaingql has. A test of that module compares its README, which
// lists them, with its code.
func TestDocumentedAlarmsUseExistingMetrics(t *testing.T) {
	underscores := strings.NewReplacer(".", "_")
	names, labels := map[string]bool{}, map[string]bool{"le": true, "instance": true}
	rows := regexp.MustCompile("(?m)^\\| `(chaingql[.a-z_]+)` \\| (\\S+) \\| `(\\S+)` \\| ([^|]*)\\|")
	for _, row := range rows.FindAllStringSubmatch(read(t, "otelchaingql/README.md"), -1) {
		name := underscores.Replace(row[1])
		if row[3] == "s" {
			name += "_seconds"
		}
		switch row[2] {
		case "counter":
			names[name+"_total"] = true
		case "histogram":
			names[name+"_bucket"], names[name+"_count"], names[name+"_sum"] = true, true, true
		default:
			names[name] = true
		}
		for _, label := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[4], -1) {
			labels[underscores.Replace(label[1])] = true
		}
	}
	text := read(t, "examples/operations/alarms.yaml")
	matchers := regexp.MustCompile(`(\w+)=~?"([^"]*)"`)
	for _, m := range matchers.FindAllStringSubmatch(text, -1) {
		if !labels[m[1]] {
			t.Errorf("no metric has the label %s", m[1])
		}
		for value := range strings.SplitSeq(m[2], "|") {
			_, known := reflect.TypeFor[chaingql.Limits]().FieldByName(value)
			if m[1] == "chaingql_limit" && !known {
				t.Errorf("%s is not a limit", value)
			}
		}
	}
	used := regexp.MustCompile(`\b(chaingql_[a-z_]+)\b`).FindAllString(matchers.ReplaceAllString(text, ""), -1)
	for _, name := range used {
		if !names[name] && !labels[name] {
			t.Errorf("otelchaingql has no metric %s", name)
		}
	}
	if len(used) < 7 || strings.Count(text, "- alert: ") != strings.Count(text, "expr: ") {
		t.Errorf("the rules use the metrics %v", used)
	}
}

// docs/hosting.md says what http.ServeMux refuses, and how to avoid it.
func TestProjectWildcardConflictsWithSubtreePatterns(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	debug := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	func() {
		defer func() {
			if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "conflicts with") {
				t.Errorf("Mount next to /debug/ panicked with %v, want a conflict", p)
			}
		}()
		mux := http.NewServeMux()
		mux.Handle("/debug/", debug)
		chaingql.Mount(mux, "/{project}/graphql", h)
	}()
	mux := withDebug(h, debug)
	for path, want := range map[string]int{
		"/debug/pprof/": http.StatusTeapot, "/debug/graphql": http.StatusTeapot,
		"/demo/graphql?query={__typename}": http.StatusOK,
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		equal(t, path, w.Code, want)
	}
}
