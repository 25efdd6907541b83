package liteservertest

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"math/big"
	"slices"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
	"github.com/xssnick/tonutils-go/tvm/cell"
)

// validators contains the private keys that sign masterchain blocks from one key block to the
// next.
type validators []ed25519.PrivateKey

// newValidators returns four keys. They are always the same for the same term.
func newValidators(term byte) (v validators) {
	for i := range byte(4) {
		seed := sha256.Sum256([]byte{'v', term, i})
		v = append(v, ed25519.NewKeyFromSeed(seed[:]))
	}
	return v
}

// weight is the weight of each validator.
const weight = 10

// config returns a network configuration that contains the validators. Its set has one more
// validator, which does not sign masterchain blocks.
func (v validators) config() *cell.Cell {
	list := cell.NewDict(16)
	all := append(slices.Clone(v), newValidators(255)[0])
	for i, key := range all {
		must(list.SetIntKey(big.NewInt(int64(i)), cell.BeginCell().MustStoreUInt(0x73, 8).MustStoreUInt(0x8e81278a, 32).
			MustStoreSlice(public(key), 256).MustStoreUInt(weight, 64).MustStoreSlice(make([]byte, 32), 256).EndCell()))
	}
	set := cell.BeginCell().MustStoreUInt(0x12, 8).MustStoreUInt(0, 64).MustStoreUInt(uint64(len(all)), 16).
		MustStoreUInt(uint64(len(v)), 16).MustStoreUInt(weight*uint64(len(all)), 64).MustStoreDict(list).EndCell()
	catchain := cell.BeginCell().MustStoreUInt(0xc1, 8).MustStoreUInt(200, 32).MustStoreUInt(200, 32).
		MustStoreUInt(3000, 32).MustStoreUInt(4, 32).EndCell()
	params := cell.NewDict(32)
	must(params.SetIntKey(big.NewInt(28), cell.BeginCell().MustStoreRef(catchain).EndCell()))
	must(params.SetIntKey(big.NewInt(34), cell.BeginCell().MustStoreRef(set).EndCell()))
	return params.AsCell()
}

// hash returns the short hash that block headers contain for the validators in a session.
func (v validators) hash(session uint32) uint32 {
	data := binary.LittleEndian.AppendUint32(nil, 0x901660ed)
	data = binary.LittleEndian.AppendUint32(data, session)
	data = binary.LittleEndian.AppendUint32(data, uint32(len(v)))
	for _, key := range v {
		data = append(data, public(key)...)
		data = binary.LittleEndian.AppendUint64(data, weight)
		data = append(data, make([]byte, 32)...)
	}
	return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
}

// sign returns the signatures of all validators for the block to which l leads.
func (v validators) sign(l lite.Link) (signatures []lite.Signature) {
	text, err := l.SignedText()
	must(err)
	for _, key := range v {
		signatures = append(signatures, lite.Signature{Node: lite.KeyID(public(key)), Sign: ed25519.Sign(key, text)})
	}
	return signatures
}

func public(key ed25519.PrivateKey) []byte { return key.Public().(ed25519.PublicKey) }
