package natschain_test

import (
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/leak"
	"github.com/nats-io/nats-server/v2/server"
)

// asBroker names the directory of the server that this program is to be, in place
// of testing.
const asBroker = "CHAINGQL_NATS_BROKER"

// The server lets go in its own time, and so does nats.go. What the server never
// lets go of is its own affair.
func TestMain(m *testing.M) {
	if dir := os.Getenv(asBroker); dir != "" {
		os.Exit(serve(dir))
	}
	leak.Main(m, 10*time.Second, "chaingql", "nats-io/nats.go")
}

// serve runs a server until stdin ends, and says where it is.
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
