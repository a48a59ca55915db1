package replay

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"

	"github.com/heardlog/heardlog/internal/secret"
)

// address is what LLM.Sealed holds.
type address struct {
	URL    string `json:"url"`
	APIKey string `json:"api_key,omitempty"`
}

// aead seals addresses and keys, so that neither a store without encryption nor an export shows
// them.
func (s *Service) aead() (cipher.AEAD, error) {
	key := sha256.Sum256(append([]byte("replay\x00"), s.cfg.Key...))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Seal returns an upstream whose address and API key only servers with this store can read.
func (s *Service) Seal(url, apiKey, vendor string) (*LLM, error) {
	plain, err := json.Marshal(address{url, apiKey})
	if err != nil {
		return nil, err
	}
	a, err := s.aead()
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, a.NonceSize())
	_, _ = rand.Read(nonce) // it never fails
	return &LLM{URL: secret.MaskLLMURL(url), Vendor: vendor, Sealed: a.Seal(nonce, nonce, plain, nil)}, nil
}

func (s *Service) open(sealed []byte) (out address, err error) {
	a, err := s.aead()
	if err != nil {
		return out, err
	}
	if len(sealed) < a.NonceSize() {
		return out, errors.New("the sealed address is too short")
	}
	plain, err := a.Open(nil, sealed[:a.NonceSize()], sealed[a.NonceSize():], nil)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(plain, &out)
}
