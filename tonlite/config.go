package tonlite

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

const (
	maxConfig     = 4 << 20 // bytes; real configurations are far smaller
	configTimeout = 30 * time.Second

	maxRedirects = 10
)

// errURL is returned for a malformed URL. It replaces the parser's error, which quotes the URL
// including any secrets in it. Errors about well-formed URLs contain only the host.
var errURL = errors.New("tonlite: read the configuration: the URL is malformed")

// errInsecure is returned for URLs without TLS, because an attacker could change the response.
var errInsecure = errors.New("tonlite: read the configuration: only https:// is safe, " +
	"because the configuration contains the trusted block")

// ReadConfig reads a network's global.config.json. The argument from is the path of a file or a
// URL that begins with https://. ReadConfig downloads a URL within 30 seconds. The configuration
// contains the block from which all others are proven, so ReadConfig returns an error for http://
// URLs and for redirects to them. The configuration of TON's mainnet is at
// https://ton.org/global.config.json.
func ReadConfig(ctx context.Context, from string) ([]byte, error) {
	if strings.HasPrefix(strings.ToLower(from), "http://") {
		return nil, errInsecure
	}
	if !strings.HasPrefix(strings.ToLower(from), "https://") {
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, fmt.Errorf("tonlite: read the configuration: %w", err)
		}
		return data, nil
	}
	ctx, cancel := context.WithTimeout(ctx, configTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, errURL
	}
	client := *http.DefaultClient
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		switch {
		case next.URL.Scheme != "https":
			return errInsecure
		case len(via) >= maxRedirects:
			return errors.New("too many redirects")
		}
		return nil
	}
	res, err := client.Do(req)
	if err != nil {
		if quoting := (*url.Error)(nil); errors.As(err, &quoting) {
			err = quoting.Err
		}
		return nil, fmt.Errorf("tonlite: read the configuration: request to %s: %w", req.URL.Host, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("tonlite: read the configuration: %s responded with %s", req.URL.Host, res.Status)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxConfig))
	if err != nil {
		return nil, fmt.Errorf("tonlite: read the configuration: %w", err)
	}
	return data, nil
}

// A network contains the parts of a configuration that this package uses.
type network struct {
	servers []peer
	zero    hashes       // hashes of the zero state; zero if not configured
	trusted lite.BlockID // init_block; zero if it is missing or is the zero state
}

type peer struct {
	addr string
	key  ed25519.PublicKey
}

type hashes struct{ root, file [32]byte }

// configFile contains the fields of global.config.json that this package uses.
type configFile struct {
	Servers []struct {
		IP   int64  `json:"ip"` // as a signed 32-bit number
		Port uint16 `json:"port"`
		ID   struct {
			Key string `json:"key"`
		} `json:"id"`
	} `json:"liteservers"`
	Validator struct {
		ZeroState configBlock `json:"zero_state"`
		InitBlock configBlock `json:"init_block"`
	} `json:"validator"`
}

type configBlock struct {
	Workchain int32  `json:"workchain"`
	SeqNo     uint32 `json:"seqno"`
	Root      []byte `json:"root_hash"`
	File      []byte `json:"file_hash"`
}

var errNoConfig = errors.New("tonlite: the configuration is empty: it must be the contents of a global.config.json")

func parseConfig(data []byte) (n network, err error) {
	if len(data) == 0 {
		return n, errNoConfig
	}
	var f configFile
	if err := json.Unmarshal(data, &f); err != nil {
		return n, fmt.Errorf("tonlite: the configuration is not a global.config.json: %w", err)
	}
	if len(f.Servers) == 0 {
		return n, errors.New("tonlite: the configuration has no liteservers")
	}
	for i, s := range f.Servers {
		key, err := base64.StdEncoding.DecodeString(s.ID.Key)
		if err != nil || len(key) != ed25519.PublicKeySize {
			return n, fmt.Errorf("tonlite: the configuration's key of liteserver %d is not 32 bytes in base64", i+1)
		}
		ip := uint32(s.IP)
		host := net.IPv4(byte(ip>>24), byte(ip>>16), byte(ip>>8), byte(ip)).String()
		n.servers = append(n.servers, peer{net.JoinHostPort(host, strconv.Itoa(int(s.Port))), key})
	}
	zero, okZero := f.Validator.ZeroState.hashes()
	init, okInit := f.Validator.InitBlock.hashes()
	if !okZero || !okInit {
		return n, errors.New("tonlite: a hash in the configuration's zero_state or init_block is not 32 bytes long")
	}
	n.zero = zero
	if b := f.Validator.InitBlock; b.SeqNo > 0 {
		if b.Workchain != masterchain || init.root == [32]byte{} {
			return n, errors.New("tonlite: the configuration's init_block is not a masterchain block")
		}
		n.trusted = lite.BlockID{
			Workchain: masterchain, Shard: wholeShard, SeqNo: b.SeqNo, Root: init.root, File: init.file,
		}
	}
	return n, nil
}

// hashes returns the hashes of the block, or zero hashes if the block is not configured. ok is
// false if a hash is malformed.
func (b configBlock) hashes() (h hashes, ok bool) {
	if len(b.Root) == 0 && len(b.File) == 0 {
		return h, true
	}
	if len(b.Root) != 32 || len(b.File) != 32 {
		return h, false
	}
	return hashes{[32]byte(b.Root), [32]byte(b.File)}, true
}
