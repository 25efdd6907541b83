package natschain_test

import (
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/nats-io/nats-server/v2/server"
)

// asBroker is the environment variable with the directory of a server. If it is set, this program
// runs that server instead of the tests.
const asBroker = "CHAINGQL_NATS_BROKER"

// TestMain fails if goroutines of this package or of nats.go remain. Goroutines that the server
// keeps are ignored.
func TestMain(m *testing.M) {
	if dir := os.Getenv(asBroker); dir != "" {
		os.Exit(serve(dir))
	}
	testkit.RunWithoutLeaks(m, 10*time.Second, "chaingql", "nats-io/nats.go")
}

// serve runs a server until stdin closes, and prints its URL.
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
