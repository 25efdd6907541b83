package chaingql

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/chaingql/chaingql/internal/plan"
)

// An Address identifies an account by its workchain and a 256-bit id. Addresses are comparable, so they can be map
// keys.
type Address struct {
	// Workchain is the number of the workchain; -1 is the masterchain.
	Workchain int32

	// ID is the account's id in the workchain.
	ID [32]byte
}

// String returns the raw form, `<workchain>:<64 lower-case hex digits>`.
func (a Address) String() string {
	return string(a.append(make([]byte, 0, 76)))
}

func (a Address) append(dst []byte) []byte {
	dst = plan.AppendInt(dst, int64(a.Workchain))
	return appendID(append(dst, ':'), &a.ID)
}

// appendID appends id as 64 lower-case hex digits.
func appendID(dst []byte, id *[32]byte) []byte {
	n := len(dst)
	dst = slices.Grow(dst, 64)[:n+64]
	digits := (*[64]byte)(dst[n:])
	for i := 0; i < len(id); i += 4 {
		binary.LittleEndian.PutUint64(digits[2*i:], hexDigits(binary.LittleEndian.Uint32(id[i:])))
	}
	return dst
}

// appendHex appends n as 16 lower-case hex digits.
func appendHex(dst []byte, n uint64) []byte {
	n = bits.ReverseBytes64(n)
	dst = binary.LittleEndian.AppendUint64(dst, hexDigits(uint32(n)))
	return binary.LittleEndian.AppendUint64(dst, hexDigits(uint32(n>>32)))
}

// hexDigits returns four bytes as eight ASCII hex digits. In both numbers, the first byte is the lowest one.
func hexDigits(four uint32) uint64 {
	const each = 0x0101010101010101
	n := uint64(four)
	n = (n | n<<16) & 0x0000ffff0000ffff
	n = (n | n<<8) & 0x00ff00ff00ff00ff
	n = (n>>4 | n<<8) & (0x0f * each)
	letters := (n + 6*each) >> 4 & each // each byte is 1 if its digit is above 9
	return n + '0'*each + letters*('a'-'0'-10)
}

// The first byte of a user-friendly address is one of the two tags. For test networks, flagTestOnly is set in it too.
const (
	tagBounceable    = 0x11
	tagNonBounceable = 0x51
	flagTestOnly     = 0x80
)

var errAddress = errors.New("chaingql: invalid account address")

// ParseAddress parses an account address: the raw form, `<workchain>:<64 hex digits>` in either case, or the
// user-friendly form of 48 characters of base64 or base64url (TEP-2) with a valid checksum. The flags of the
// user-friendly form (bounceable, test network only) must be valid, but are not part of the returned Address.
func ParseAddress(s string) (Address, error) { return parseAddress(s) }

func parseAddress[T string | []byte](s T) (Address, error) {
	if len(s) == 48 {
		return parseFriendly(string(s))
	}
	colon := len(s) - 65
	if colon < 0 || colon > len("-2147483648") || s[colon] != ':' { // ParseInt copies a text that is wrong
		return Address{}, errAddress
	}
	var a Address
	if workchain := string(s[:colon]); workchain != "0" { // nearly all accounts are in workchain 0
		n, err := strconv.ParseInt(workchain, 10, 32)
		if err != nil || strconv.FormatInt(n, 10) != workchain { // rejects "+1", "-0" and "007"
			return Address{}, errAddress
		}
		a.Workchain = int32(n)
	}
	wrong, id := uint64(0), s[colon+1:]
	for i := 0; i < len(id); i += 8 {
		four, bad := parseHex(binary.LittleEndian.Uint64([]byte(id[i : i+8])))
		binary.LittleEndian.PutUint32(a.ID[i/2:], four)
		wrong |= bad
	}
	if wrong != 0 {
		return Address{}, errAddress
	}
	return a, nil
}

// parseHex is the inverse of hexDigits. It accepts digits of either case. wrong is not 0 if a byte is no digit.
func parseHex(digits uint64) (four uint32, wrong uint64) {
	const each = 0x0101010101010101
	letters := digits >> 6 & each // each byte is 1 if its digit is a letter
	n := digits&(0x0f*each) + 9*letters
	// The upper four bits must be 3, or 4 or 6 for a letter. A letter has a value of 10 to 15, and all others below 10.
	wrong = (digits&(0xf0*each) | letters<<5) ^ (0x30*each + 0x30*letters)
	wrong |= n&(0x10*each) | ((n+6*each)>>4&each ^ letters)
	n = (n<<4 | n>>8) & 0x00ff00ff00ff00ff
	n = (n | n>>8) & 0x0000ffff0000ffff
	return uint32(n | n>>16), wrong
}

func parseFriendly(s string) (Address, error) {
	encoding := base64.StdEncoding
	if strings.ContainsAny(s, "-_") {
		encoding = base64.URLEncoding
	}
	var raw [36]byte // tag, workchain, id, checksum
	if n, err := encoding.Strict().Decode(raw[:], []byte(s)); err != nil || n != len(raw) {
		return Address{}, errAddress
	}
	if tag := raw[0] &^ flagTestOnly; tag != tagBounceable && tag != tagNonBounceable {
		return Address{}, errAddress
	}
	if crc16(raw[:34]) != uint16(raw[34])<<8|uint16(raw[35]) {
		return Address{}, errAddress
	}
	a := Address{Workchain: int32(int8(raw[1]))}
	copy(a.ID[:], raw[2:34])
	return a, nil
}

// crc16 returns the XMODEM checksum that TEP-2 specifies.
func crc16(p []byte) uint16 {
	var crc uint16
	for _, b := range p {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
