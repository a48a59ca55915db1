// A token as Agora's server SDKs make one from an app ID and its certificate.
//
//   node token.mjs APP_ID CERTIFICATE CHANNEL
import token from 'agora-token';

const [appID, certificate, channel] = process.argv.slice(2);
const seconds = 600;
console.log(token.RtcTokenBuilder.buildTokenWithRtm(appID, certificate, channel, '9001', token.RtcRole.PUBLISHER, seconds, seconds));
