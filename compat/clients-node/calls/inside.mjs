// Parts of LiveKit Agents that its package does not export. A room uses the synchronizer; the speech
// handle tells which speech a voice is speaking.
export async function inside() {
  const dist = new URL('.', import.meta.resolve('@livekit/agents'));
  const { speechHandleStorage } = await import(new URL('voice/agent.js', dist));
  const { TranscriptionSynchronizer, defaultTextSyncOptions } = await import(new URL('voice/transcription/synchronizer.js', dist));
  return { speechHandleStorage, TranscriptionSynchronizer, defaultTextSyncOptions };
}
