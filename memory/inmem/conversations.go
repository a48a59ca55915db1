package inmem

import (
	"bytes"
	"context"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

var _ memory.ConversationStore = (*Store)(nil)

// SaveConversation stores a conversation.
func (s *Store) SaveConversation(ctx context.Context, project, id string, body []byte, limit int) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	k := key{project, id}
	if _, known := s.conversations[k]; !known && limit > 0 && len(s.conversationIDs(project)) >= limit {
		return memory.TooManyConversations(limit)
	}
	s.conversations[k] = bytes.Clone(body)
	return nil
}

// LoadConversation gives a conversation.
func (s *Store) LoadConversation(ctx context.Context, project, id string) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	body, ok := s.conversations[key{project, id}]
	if !ok {
		return nil, fault.New(fault.NotFound, "there is no conversation %q", id)
	}
	return bytes.Clone(body), nil
}

// DeleteConversation takes a conversation away.
func (s *Store) DeleteConversation(ctx context.Context, project, id string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	delete(s.conversations, key{project, id})
	return nil
}

// ListConversations lists a project's ids.
func (s *Store) ListConversations(ctx context.Context, project, after string, limit int) ([]string, int, error) {
	if err := s.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer s.mu.Unlock()
	all := s.conversationIDs(project)
	from, found := slices.BinarySearch(all, after)
	if found {
		from++
	}
	return slices.Clone(all[from:min(len(all), from+max(limit, 1))]), len(all), nil
}

// ClearConversations takes all of a project's conversations away.
func (s *Store) ClearConversations(ctx context.Context, project string) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	all := s.conversationIDs(project)
	for _, id := range all {
		delete(s.conversations, key{project, id})
	}
	return len(all), nil
}

// conversationIDs gives a project's ids in order. The caller holds mu.
func (s *Store) conversationIDs(project string) []string {
	var out []string
	for k := range s.conversations {
		if k.project == project {
			out = append(out, k.id)
		}
	}
	slices.Sort(out) // by bytes, which in UTF-8 is by code point
	return out
}
