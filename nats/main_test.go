package natschain_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/nats-io/nats-server/v2/server"
)

// asBroker is an environment variable. If it contains a directory, this program runs a NATS server
// that stores its data in that directory, instead of the tests.
const asBroker = "CHAINGQL_NATS_BROKER"

// TestMain fails if goroutines of this package or of nats.go still run after the tests. It ignores
// goroutines of the server.
func TestMain(m *testing.M) {
	if dir := os.Getenv(asBroker); dir != "" {
		os.Exit(serve(dir))
	}
	flag.Parse()
	if !isSet("test.parallel") { // most parallel tests wait
		_ = flag.Set("test.parallel", "6")
	}
	debug.SetGCPercent(400) // the servers allocate much memory for a short time
	testkit.RunWithoutLeaks(m, 10*time.Second, "chaingql", "nats-io/nats.go")
}

func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// serve starts a server, prints its URL, and stops the server when stdin closes.
func serve(dir string) int {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		return 1
	}
	fmt.Println(s.ClientURL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.Shutdown()
	s.WaitForShutdown()
	return 0
}
